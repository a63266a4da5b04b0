"""stub"""

from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json


def write_page(folder: RunFolder, summary: Json) -> None: ...
