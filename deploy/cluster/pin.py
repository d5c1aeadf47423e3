"""Image pinning: writes the images with their digests into the values of every overlay and into the node bootstrap.

    python -m slipway.deploy.cluster.pin platform=registry.example/slipway/platform:0.3.0@sha256:... trainer=...

CI calls it after it has built and signed the images of a release, and then calls `slipway cluster render`.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from slipway.deploy.cluster.render import DEPLOY

NAMES = ("platform", "trainer")
PINNED = re.compile(r"[a-z0-9][^\s@]*@sha256:[0-9a-f]{64}")


def pinned(text: str, images: Mapping[str, str]) -> str:
    """The text with the images of these names replaced: `platform: IMAGE`, `image: .../trainer:TAG`.

    Raises ValueError for an image without a digest.
    """
    for name, image in images.items():
        if name not in NAMES or not PINNED.fullmatch(image):
            raise ValueError(
                f"found {name}={image}, expected {' or '.join(NAMES)}, and an image with its @sha256: digest"
            )
        text = re.sub(rf"^( +{name}: )\S+/{name}[:@]\S+", rf"\g<1>{image}", text, flags=re.M)
        text = re.sub(rf"^( +(?:- )?image: )\S+/{name}[:@]\S+", rf"\g<1>{image}", text, flags=re.M)
    return text


def files() -> list[Path]:
    """The files that name images."""
    platform = DEPLOY / "platform"
    return sorted([*platform.glob("overlays/*/values.yaml"), *platform.glob("components/*/*.yaml")])


def main(arguments: list[str]) -> None:
    images = dict(argument.split("=", 1) for argument in arguments)
    for file in files():
        before = file.read_text()
        after = pinned(before, images)
        if after != before:
            file.write_text(after)
            print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
