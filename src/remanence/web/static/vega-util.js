// What vega-interpreter.js imports from vega-util; vega.min.js, loaded before, brings it.
export const { ascending, isString, DisallowedObjectProperties } = globalThis.vega;
