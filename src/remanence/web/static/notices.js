// What was asked for in the background and refused, or not answered at all, is said; without this nothing would be seen.
const GONE = "The dashboard does not answer, so this page is no longer up to date. If it was started again, open the address that it printed.";

function say(text) {
  const main = document.getElementById("main");
  const note = document.getElementById("notice") ?? document.createElement("p");
  if (note.textContent === text) return; // a page that asks every second would be read aloud every second
  Object.assign(note, { id: "notice", className: "wrong", textContent: text });
  note.setAttribute("role", "alert");
  main.prepend(note);
}

function sentence(xhr) {
  const page = new DOMParser().parseFromString(xhr.responseText, "text/html");
  return page.querySelector("main .note")?.textContent.trim();
}

document.addEventListener("htmx:sendError", () => say(GONE));
document.addEventListener("htmx:responseError", ({ detail: { xhr } }) => say(xhr.status === 403 ? GONE : sentence(xhr) ?? GONE));
document.addEventListener("htmx:afterRequest", ({ detail }) => { if (detail.successful) document.getElementById("notice")?.remove(); });
