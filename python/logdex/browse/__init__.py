"""Pages about a store, a Kafka log directory or an index directory, for a browser on this machine. Nothing is changed.

Only this package of logdex needs Starlette, uvicorn and Jinja2.

    from logdex.browse import browse

    browse("/data/store")  # serves until Ctrl-C
"""

from __future__ import annotations

try:
    from logdex.browse.server import browse
except ModuleNotFoundError as error:
    package = (error.name or "").partition(".")[0]
    if package not in ("starlette", "uvicorn", "jinja2", "markupsafe", "anyio"):
        raise
    needed = "pip install 'starlette>=0.46' 'uvicorn>=0.34' 'jinja2>=3.1'"
    raise ImportError(f"logdex browse needs {package}, which this Python lacks: {needed}") from error

__all__ = ["browse"]
