"""The daemon's messages."""

from __future__ import annotations

import faulthandler
import logging
import os
import time

from rm.config import Config


def start_logging(config: Config) -> None:
    """Messages to standard error; as JSON lines when rm.toml says so.

    Where a library ends the process by a signal (SIGSEGV), its last words say in which line that was.
    """
    faulthandler.enable()
    handler = logging.StreamHandler()
    if config.daemon.log_json:
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=config.daemon.log_level.upper(), handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it lists its own plugins


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json

        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": os.getpid(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
