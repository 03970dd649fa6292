"""Pages in a real browser that tests use one after the other: a new one costs a process."""

from pathlib import Path
from typing import Any


class Pages:
    """Pages by the options of their context; those that no test uses wait on an empty page."""

    def __init__(self, browser: Any, resting_page: Path) -> None:
        self._browser, self._rest = browser, resting_page.as_uri()
        self._free: dict[str, list[Any]] = {}

    def take(self, script: str, options: dict[str, Any]) -> tuple[list[Any], Any]:
        """Return a page whose context runs a script before the page's own, and where it waits."""
        free = self._free.setdefault(f"{sorted(options.items())} {script}", [])
        if free:
            return free, free.pop()
        context = self._browser.new_context(**options)
        context.add_init_script(script)
        return free, context.new_page()

    def rest(self, page: Any) -> None:
        page.goto(self._rest)


class Visit:
    """The pages of one test, what they ask for, and what they complain of."""

    def __init__(self, pages: Pages) -> None:
        self._pages, self._taken = pages, list[tuple[list[Any], Any]]()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._listeners = {
            "request": lambda request: self.requests.append(request.url),
            "console": lambda message: self.complaints.append(f"{message.type}: {message.text}"),
            "pageerror": lambda error: self.complaints.append(str(error)),
            "dialog": lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()),
        }

    def page(self, script: str = "", *, seconds: float = 30.0, **options: Any) -> Any:
        """Take a page; whatever is waited for there comes within some seconds."""
        free, page = self._pages.take(script, options)
        self._taken.append((free, page))
        page.set_default_timeout(1000 * seconds)
        for event, listener in self._listeners.items():
            page.on(event, listener)
        return page

    def end(self) -> None:
        """Give all pages back: nothing is pressed, nothing is pointed at."""
        for free, page in self._taken:
            if page.is_closed():
                continue
            page.mouse.up()
            page.mouse.move(-1, -1)
            page.context.set_offline(False)
            for event, listener in self._listeners.items():
                page.remove_listener(event, listener)
            self._pages.rest(page)
            free.append(page)
