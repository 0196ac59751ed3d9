"""``python docs/shots.py SITE OUT``: pages of the built site as pictures, to be looked at.

At 360 and 1280 pixels, light and dark, by a Chromium of this machine, which fetches nothing:
requests to other hosts fail.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PAGES = ("index", "guides/cut-tokens", "guides/agent-memory", "reference/settings", "architecture")
WIDTHS = (360, 1280)
HEIGHT = 1600
SCHEMES = {"dark": 0, "light": 1}
"""Colour schemes by Chromium's numbers of them."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ALWAYS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND"
SECONDS = 60


def browser() -> str:
    """The Chromium of this machine.

    Raises:
        SystemExit: There is none.
    """
    for name in BROWSERS:
        found = shutil.which(name)
        if found:
            return found
    sys.exit(f"no browser: install one of {', '.join(BROWSERS)}")


def shoot(program: str, page: Path, width: int, scheme: int, picture: Path) -> None:
    """One page as a PNG."""
    look = f"--blink-settings=preferredColorScheme={scheme}"
    size = f"--window-size={width},{HEIGHT}"
    target = f"--screenshot={picture}"
    command = [program, *ALWAYS, OFFLINE, look, size, target, page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)


def main(site: Path, out: Path) -> None:
    """Every page at every width in every scheme."""
    program = browser()
    out.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        for width in WIDTHS:
            for name, scheme in SCHEMES.items():
                picture = out / f"{page.replace('/', '-')}-{width}-{name}.png"
                shoot(program, (site / f"{page}.html").resolve(), width, scheme, picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
