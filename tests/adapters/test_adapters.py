"""The adapters against the real packages; `make test-adapters` installs them in an environment of its own."""

from pathlib import Path

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
    from remanence.training.lightning import RecorderCallback

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


def test_huggingface(tmp_path: Path) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed; run make test-adapters"
    )
    from remanence.training.huggingface import Logits, RecorderCallback

    class Named(Dataset[dict[str, torch.Tensor]]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
            pixels, label = pairs()[i]
            return {"pixel_values": pixels, "labels": label}

    def fit(callbacks: list[object]) -> nn.Module:
        torch.manual_seed(0)
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=8,
            patch_size=4,
            num_channels=1,
            num_labels=10,
            hidden_dropout_prob=0.0,
        )
        model = transformers.ViTForImageClassification(config)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "hf"),
            max_steps=8,
            per_device_train_batch_size=10,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            seed=1,
        )
        transformers.Trainer(model=model, args=arguments, train_dataset=Named(), callbacks=callbacks).train()
        return model

    callback = RecorderCallback(rm.with_ids(pairs()), mechanism=MECHANISM, checkpoints=2, placement="even")
    watched, plain = fit([callback]), fit([])
    assert torch.equal(weights(watched), weights(plain))
    assert callback.trace is not None
    assert callback.trace.steps.tolist() == [0, 4, 8]
    expected = rm.example_gradient_norms(Logits(watched, "pixel_values"), *pairs().tensors).numpy()
    np.testing.assert_allclose(callback.trace.norms[-1], expected, rtol=1e-4)


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
