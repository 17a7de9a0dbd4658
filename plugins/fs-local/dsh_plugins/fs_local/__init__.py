"""The plugin `fs-local`: the disk of this machine behind the file seam.

What comes in: paths, texts and conditions from whoever uses the seam. What goes out: pages, walks
and matches, and files that are replaced whole or not at all. It registers no tool and judges no
path.
"""

from __future__ import annotations

from dsh import Context, plugin
from dsh.seams.fs import FS
from dsh_plugins.fs_local.local import LocalFiles

__all__ = ["LocalFiles", "fs_local"]


@plugin(name="fs-local", provides=(FS,))
async def fs_local(ctx: Context) -> None:
    """Provide the file seam."""
    ctx.provide(FS, LocalFiles())
