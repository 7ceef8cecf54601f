"""Your own model and training loop, from training to the evidence that one example was forgotten.

Run it in an empty folder: `python own_model.py`. It takes about two minutes.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import remanence as rm

EPOCHS, BATCH = 6, 64
pictures, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
digits = TensorDataset(pictures.float().view(-1, 1, 8, 8) / 16, labels)
train_set, test_set = TensorDataset(*digits[:1200]), TensorDataset(*digits[1200:])


def build() -> nn.Module:
    convolutions = nn.Sequential(nn.Conv2d(1, 12, 3), nn.GELU(), nn.Conv2d(12, 24, 3), nn.GELU())
    return nn.Sequential(convolutions, nn.Flatten(), nn.Linear(24 * 16, 10))


def fit(model, dataset, *, seed, steps=None, record=lambda: None):
    """An ordinary PyTorch training: AdamW, one-cycle schedule, augmentation."""
    random = torch.Generator().manual_seed(seed)
    loader = DataLoader(dataset, BATCH, shuffle=True, generator=random)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=EPOCHS * len(loader))
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            shift = int(torch.randint(-1, 2, (), generator=random))
            loss = nn.functional.cross_entropy(model(inputs.roll(shift, dims=3)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            record()


recipe = rm.Recipe(epochs=EPOCHS, batch_size=BATCH, optimizer="adamw", learning_rate=3e-3, weight_decay=0.01)
task = rm.Task(build, train_set, test_set, recipe, loss=rm.losses.cross_entropy, fit=fit)

if __name__ == "__main__":
    model, total = task.new_model(seed=0), recipe.total_steps(len(train_set))
    mechanism = recipe.mechanism(len(train_set), assumed_sigma=0.1, model=model)
    how = {"mechanism": mechanism, "departures": ["Training shifted the pictures at random."]}
    recorder = rm.Recorder(model, task=task, total_steps=total, out="run", **how)
    fit(model, train_set, seed=0, record=recorder.step)
    recorder.finish()

    run, ids = rm.open_run("run"), [17, 42, 99]
    run.calibrate(models=20, sets=20, workers=2)
    print(run.plan(ids).recommendation())
    result = run.forget(ids, out="forgotten")
    print({finding.metric.name: finding.value for finding in result.run.audit(ids).findings})
    checks = rm.verify_evidence("forgotten/evidence.json")
    print(f"Evidence: {sum(check.holds for check in checks)} of {len(checks)} checks passed.")
