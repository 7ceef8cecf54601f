"""The adapters against the real packages; `make test-adapters` installs them in an environment of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import remanence as rm
from remanence.data import digits
from remanence.models import small_conv, vit_small

MECHANISM = rm.Mechanism(sigma=0.1, sampling_rate=0.25, steps=8, batch_size=10)
pytestmark = pytest.mark.filterwarnings("default")


def pairs(n: int = 40) -> TensorDataset:
    train, _ = digits()
    return TensorDataset(train.inputs[:n], train.labels[:n])


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_lightning(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed; run make test-adapters")
    from remanence.lightning import RecorderCallback

    class Net(pl.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = small_conv(width=4)

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(callbacks: list[object]) -> Net:
        net = Net()
        trainer = pl.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=callbacks,
            default_root_dir=tmp_path,
        )
        trainer.fit(net, DataLoader(pairs(), batch_size=10))
        return net

    callback = RecorderCallback(
        rm.with_ids(pairs()),
        model=lambda module: module.net,
        mechanism=MECHANISM,
        checkpoints=2,
        placement="even",
        out=tmp_path / "run",
    )
    watched, plain = fit([callback]), fit([])
    assert torch.equal(weights(watched), weights(plain))
    assert callback.trace is not None
    assert callback.trace.steps.tolist() == [0, 4, 8]
    expected = rm.example_gradient_norms(watched.net, *pairs().tensors).numpy()
    np.testing.assert_allclose(callback.trace.norms[-1], expected, rtol=1e-5)


class Words(Dataset[dict[str, torch.Tensor]]):
    """Sentences of 3 to 8 of 30 words, padded; the class is the parity of the first word."""

    def __init__(self, n: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.words = torch.randint(2, 30, (n, 8), generator=random)
        self.mask = torch.arange(8)[None] < torch.randint(3, 9, (n, 1), generator=random)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        words = torch.where(self.mask[i], self.words[i], 0)
        return {"input_ids": words, "attention_mask": self.mask[i].long(), "labels": words[0] % 2}


def bert(transformers: Any) -> Any:
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=30,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=8,
            num_labels=2,
        )
    )


def make_trainer(transformers: Any, folder: Path, epochs: int = 2, **given: Any) -> Any:
    torch.manual_seed(0)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "hf"),
        num_train_epochs=epochs,
        learning_rate=5e-3,
        per_device_train_batch_size=16,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
    )
    return transformers.Trainer(
        model=bert(transformers),
        args=arguments,
        train_dataset=Words(160, 0),
        eval_dataset=Words(80, 1),
        **given,
    )


def test_a_trainer_with_attention_masks_is_recorded_and_not_changed(tmp_path: Path) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed; run make test-adapters"
    )
    from remanence.huggingface import RecorderCallback

    data = Words(160, 0)
    callback = RecorderCallback(rm.with_ids(data), checkpoints=2, placement="even")
    watched = make_trainer(transformers, tmp_path, callbacks=[callback])
    watched.train()
    plain = make_trainer(transformers, tmp_path)
    plain.train()
    assert torch.equal(weights(watched.model), weights(plain.model))
    assert callback.trace is not None
    assert callback.trace.steps.tolist() == [0, 10, 20]
    assert "AdamW" in " ".join(callback.trace.mechanism.departures)
    model = watched.model.eval()
    for i in (0, 7, 31):
        model.zero_grad()
        item = {name: value[None] for name, value in data[i].items()}
        model(**item).loss.backward()
        norm = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm().item()
        assert callback.trace.norms[-1, i] == pytest.approx(norm, rel=1e-4), "the attention mask must count"


def test_a_trainer_from_training_to_evidence(tmp_path: Path) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed; run make test-adapters"
    )
    from remanence.huggingface import RecorderCallback, task_from

    trainer = make_trainer(transformers, tmp_path, epochs=4)
    task = task_from(trainer, ids=[f"mail-{i}" for i in range(160)])
    assert (task.recipe.optimizer, task.recipe.learning_rate, task.recipe.batch_size) == ("adamw", 5e-3, 16)
    trainer.add_callback(RecorderCallback(task=task, out=tmp_path / "run", checkpoints=4))
    trainer.train()
    run = rm.open_run(tmp_path / "run", task=task)
    assert torch.equal(weights(run.model()), weights(trainer.model))
    request_goes_through(run, task, [f"mail-{i}" for i in range(25)], tmp_path)


def request_goes_through(run: rm.Run, task: rm.Task, ids: list[str], folder: Path) -> None:
    """Calibrate, plan, forget, audit against an oracle, verify."""
    run.calibrate(models=20, sets=30, sizes=(20, 30), budget=10)
    assert run.plan(ids).expected.mia > 0
    result = run.forget(ids, out=folder / "forgotten")
    oracle = run.unlearn(ids, "retrain", out=folder / "oracle", seed=5)
    audit = result.run.audit(ids, oracles=[oracle])
    assert {"ua", "mia_confidence"} <= {finding.metric.name for finding in audit.findings}
    assert all(check.holds for check in rm.verify_evidence(folder / "forgotten" / "evidence.json"))
    with pytest.raises(rm.errors.DataError, match="already unlearned"):
        rm.open_run(folder / "forgotten", task=task).unlearn(ids, "finetune", out=folder / "again")


def test_a_lightning_module_from_training_to_evidence(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed; run make test-adapters")
    from remanence.lightning import RecorderCallback, task_from

    class Net(pl.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self, hidden: int = 16) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.net(inputs)
            return logits

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=5e-3)

    class Data(pl.LightningDataModule):  # type: ignore[misc,name-defined]
        def train_dataloader(self) -> DataLoader[object]:
            return DataLoader(pairs(160), batch_size=16, shuffle=True)

        def val_dataloader(self) -> DataLoader[object]:
            _, test = digits()
            return DataLoader(TensorDataset(test.inputs[:80], test.labels[:80]), batch_size=16)

    task = task_from(Net(), Data(), epochs=4)
    assert (task.recipe.optimizer, task.recipe.learning_rate, task.recipe.batch_size) == ("adam", 5e-3, 16)
    model = task.new_model(0)
    mechanism = rm.Mechanism(sigma=0.1, sampling_rate=0.1, steps=40, batch_size=16)
    callback = RecorderCallback(
        model=lambda module: model, task=task, mechanism=mechanism, out=tmp_path / "run", checkpoints=4
    )
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
        default_root_dir=tmp_path,
    )
    trainer.fit(model.module, Data().train_dataloader())
    ids = list(range(25))
    request_goes_through(rm.open_run(tmp_path / "run", task=task), task, ids, tmp_path)


@pytest.mark.parametrize(("image", "patch", "depth"), [(32, 4, 12), (32, 4, 6), (28, 7, 2)])
def test_vit_small_has_the_parameters_of_the_reference(image: int, patch: int, depth: int) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed; run make test-adapters"
    )
    config = transformers.ViTConfig(
        hidden_size=384,
        num_hidden_layers=depth,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=image,
        patch_size=patch,
        num_labels=10,
    )
    reference = transformers.ViTForImageClassification(config)
    ours = vit_small(image=image, patch=patch, depth=depth, num_classes=10)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in reference.parameters())
