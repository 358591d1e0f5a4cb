"""What a config.json describes: the family of the class it names, and the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.config import HFConfig, class_name_of, hf_config
from trinity.formats.huggingface.families import FAMILIES
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.values import shown
from trinity.formats.other_models import other_model


def read_model(values: Mapping[str, object], source: str) -> tuple[Family, HFConfig]:
    """The family and configuration of the object ``values`` of the file ``source``.

    Raises ConfigError for values that are missing, impossible or at odds; UnsupportedError for a
    class that is not known, listing those that are, and for what trinity cannot read.
    """
    named = values.get("_class_name")  # by diffusers
    if isinstance(named, str) and "architectures" not in values:
        found = other_model({}, class_name=named) or "a model of diffusers; trinity reads text"
        raise UnsupportedError(f"{source}: {found} (_class_name is {named[:60]!r})")
    class_name = class_name_of(values, source)
    for family in FAMILIES:
        if class_name in family.class_names:
            return family, hf_config(values, source, family.terms)
        if class_name in family.wrappers:
            inner = values.get("text_config")
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"{source}: text_config is {shown(inner)}; expected the object that describes "
                    f"the part of a {class_name} that writes"
                )
            both = {**values, **inner, "architectures": [class_name]}
            return family, hf_config(both, source, family.terms)
    other = other_model({}, class_name=class_name)
    if other is not None:
        raise UnsupportedError(f"{source}: {other} (architectures names {class_name[:60]!r})")
    known = ", ".join(sorted(name for f in FAMILIES for name in (*f.class_names, *f.wrappers)))
    raise UnsupportedError(
        f"{source}: architectures names {class_name[:60]!r}; trinity reads {known}"
    )
