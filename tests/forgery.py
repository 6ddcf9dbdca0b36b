"""Model folders whose hashes are right and whose content is not."""

import json
import shutil
from dataclasses import replace

from dbull.store import ModelFolder


def forge(folder, name, change, checkpoint=None):
    """Write a model, that of the folder unless given, with one document or group of tensors changed."""
    checkpoint = checkpoint or ModelFolder(folder).load().checkpoint
    if name == "settings":
        settings = json.loads(json.dumps(checkpoint.settings))
        change(settings)
        checkpoint = replace(checkpoint, settings=settings)
    elif name in checkpoint.tensors:
        tensors = {g: dict(group) for g, group in checkpoint.tensors.items()}
        change(tensors[name])
        checkpoint = replace(checkpoint, tensors=tensors)
    else:
        documents = json.loads(json.dumps(checkpoint.documents))
        change(documents[name])
        checkpoint = replace(checkpoint, documents=documents)
    shutil.rmtree(folder)
    ModelFolder(folder).commit(checkpoint, None)
