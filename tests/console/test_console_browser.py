"""The console in a real Chromium: by keyboard, with axe, in light and dark mode, and under attack."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from catalog.http import server
from catalog.http.console.navigation import ENTRIES
from catalog.settings.sections import HttpSettings
from tests.support.http_calls import encrypted_table, new_table
from tests.support.identity_provider import AUDIENCE, IdentityProvider, identity_provider
from tests.support.lake import ALICE, BOB, policy, standard_policies, tables
from tests.support.service import Service, open_service

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="`make .venv/.browser` installs Selenium and axe"
)
waiting = pytest.importorskip("selenium.webdriver.support.wait")
axe_selenium = pytest.importorskip("axe_selenium_python", reason="`make .venv/.browser` installs axe")

_CHROMIUM, _DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(_CHROMIUM is None or _DRIVER is None, reason="chromium and chromedriver are not here"),
]

EVIL = "<img src=x onerror=alert(1)>"
PAGES = (
    "/console",
    "/console/namespace?name=db",
    "/console/table?name=db.orders",
    "/console/policies",
    "/console/policies/document?kind=ranger&name=files.lake",
    f"/console/explain?user={ALICE}&resource=column:db.orders/name&live=true",
    f"/console/explain?user={BOB}&resource=column:db.orders/name",
    "/console/difference",
    "/console/keys",
    "/console/refusals",
    "/console/audit",
    "/console/audit/verify",
    "/console/table?name=db.none",
    "/console/login",
)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Service]:
    """A service at `localhost`, which is another site than the provider at 127.0.0.1."""
    port = _free_port()
    settings = {
        "CONSOLE__URL": f"http://localhost:{port}",
        "IDENTITY__ISSUERS__CORP__ISSUER": provider.url,
        "IDENTITY__ISSUERS__CORP__AUDIENCE": AUDIENCE,
        "IDENTITY__ISSUERS__CORP__CONSOLE__CLIENT_ID": "lake-console",
    }
    policies = [*standard_policies(), policy(EVIL, tables("db"), {EVIL: ["select"]}, description=EVIL)]
    root, listen = tmp_path_factory.mktemp("lake"), server.listen
    here = HttpSettings(port=port)
    with pytest.MonkeyPatch.context() as patched:
        # The settings have the address before the service listens.
        patched.setattr(server, "listen", lambda _settings: listen(here))
        yield from _serving(root, policies, settings)


def _serving(root: Path, policies: Any, settings: dict[str, str]) -> Iterator[Service]:
    with open_service(root, policies=policies, **settings) as service:
        with service.client(ALICE) as alice:
            alice.post(f"{service.prefix}/namespaces", json={"namespace": ["db"]})
            assert encrypted_table(alice, "db", "orders").status_code == 200
            assert new_table(alice, service.prefix, "db", "<img src=x onerror=alert(1)>").status_code == 200
            alice.post("/admin/v1/tables/db/orders/keys/rotate", json={})
        with service.client(BOB) as bob:
            for number in range(3):
                bob.get(f"{service.prefix}/namespaces/db/tables/{quote(EVIL)}{number}")
        yield service


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = _CHROMIUM
    for each in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(_DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def address(served: Service) -> str:
    url = served.lake.settings.console.url
    assert url is not None
    return url


@pytest.fixture
def logged_in(chromium: Any, served: Service, address: str) -> Any:
    """Alice, logged in with her token by keyboard alone."""
    chromium.delete_all_cookies()
    chromium.set_window_size(1280, 900)
    chromium.get(f"{address}/console")
    chromium.find_element("id", "token").send_keys(served.token(ALICE) + "\ue007")
    assert chromium.current_url == f"{address}/console"
    assert ALICE in chromium.find_element("css selector", "header").text
    chromium.get_log("browser")
    chromium.get_log("performance")
    return chromium


def _use(driver: Any, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def _hosts(driver: Any) -> set[str]:
    """The hosts that the browser sent requests to."""
    events = [json.loads(each["message"])["message"] for each in driver.get_log("performance")]
    sent = [each["params"] for each in events if each["method"] == "Network.requestWillBeSent"]
    urls = [httpx.URL(each["request"]["url"]) for each in sent]
    # The browser draws its own controls, from data.
    return {url.netloc.decode() for url in urls if url.scheme != "data"}


def _complaints(driver: Any) -> list[str]:
    """Warnings and errors of the console log, but that an answer was an error."""
    return [
        each["message"]
        for each in driver.get_log("browser")
        if each["level"] in ("WARNING", "SEVERE") and "the server responded" not in each["message"]
    ]


def _type(driver: Any, keys: str) -> None:
    driver.switch_to.active_element.send_keys(keys)


def _tab_to(driver: Any, text: str) -> None:
    """Go to a link or button with the keyboard alone."""
    for _ in range(60):
        _type(driver, "\ue004")
        if driver.switch_to.active_element.text.strip() == text:
            return
    raise AssertionError(f"the keyboard does not reach {text!r}")


@pytest.mark.parametrize("path", PAGES)
def test_pages_have_no_violation_of_axe_in_light_and_dark_mode(
    logged_in: Any, address: str, path: str, scheme: str
) -> None:
    _use(logged_in, scheme)
    logged_in.get(f"{address}{path}")
    axe = axe_selenium.Axe(logged_in)
    # Scripts of the page are forbidden; axe is run by the driver.
    logged_in.execute_script(Path(axe.script_url).read_text("utf-8"))
    found = axe.run()["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


@pytest.mark.parametrize("path", PAGES)
def test_pages_load_nothing_from_elsewhere_and_run_no_script(logged_in: Any, address: str, path: str) -> None:
    logged_in.get(f"{address}{path}")
    assert _hosts(logged_in) == {address.removeprefix("http://")}
    assert _complaints(logged_in) == []
    assert logged_in.find_elements("css selector", "script, main img, [onerror]") == []


@pytest.mark.parametrize("path", PAGES)
def test_pages_fit_a_narrow_window(logged_in: Any, address: str, path: str) -> None:
    logged_in.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        logged_in.get(f"{address}{path}")
        width = logged_in.execute_script("return document.documentElement.scrollWidth")
    finally:
        logged_in.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert width <= 360


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda each: each.title)
def test_each_page_is_reached_by_keyboard(logged_in: Any, address: str, entry: Any) -> None:
    logged_in.get(f"{address}/console")
    _tab_to(logged_in, entry.title)
    _type(logged_in, "\ue007")
    assert logged_in.current_url == f"{address}{entry.path}"
    assert logged_in.find_element("css selector", "[aria-current=page]").text == entry.title


def test_a_user_logs_out_by_keyboard(logged_in: Any, address: str) -> None:
    _tab_to(logged_in, "Log out")
    _type(logged_in, "\ue007")
    assert logged_in.current_url == f"{address}/console/login"
    assert logged_in.get_cookies() == []
    logged_in.get(f"{address}/console")
    assert logged_in.find_elements("id", "token")


def test_a_form_is_filled_in_and_sent_by_keyboard(logged_in: Any, address: str) -> None:
    logged_in.get(f"{address}/console/difference")
    logged_in.find_element("id", "document").send_keys('{"policies": []}')
    _tab_to(logged_in, "Compare")
    _type(logged_in, "\ue007")
    assert "Result" in logged_in.find_element("css selector", "main").text


def test_a_user_logs_in_at_a_provider_of_another_site(
    chromium: Any, address: str, provider: IdentityProvider
) -> None:
    """The browser goes on with the cookie that is not sent after a redirect from another site."""
    chromium.delete_all_cookies()
    provider.user = ALICE
    chromium.get(f"{address}/console/login")
    chromium.find_element("link text", "Log in with corp").click()
    waiting.WebDriverWait(chromium, 20).until(lambda driver: driver.current_url == f"{address}/console")
    assert ALICE in chromium.find_element("css selector", "header").text
