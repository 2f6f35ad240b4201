"""A web server in a sandbox, and a link by which somebody else sees it."""

from sandgate import Sandbox

with Sandbox.create("python", labels={"purpose": "preview"}, ttl_seconds=3600) as sandbox:
    sandbox.files.write("/tmp/site/index.html", "<title>Hello</title><h1>Hello from a sandbox</h1>", parents=True)
    server = sandbox.commands.start(["python3", "-u", "-m", "http.server", "3000"], cwd="/tmp/site")
    # It says so once it listens.
    for chunk in server.output:
        if "Serving" in chunk.data:
            break

    # A private preview: a link lets one browser in, and programs send the token. With `public=True` the address
    # will do.
    preview = sandbox.ports.open(3000, ttl_seconds=3600)
    link = sandbox.ports.link(preview.id)
    print(f"Share this link, which works once: {link.url}")
    print(f"For programs: curl -H 'X-Sandgate-Token: {preview.token}' {preview.url}")
    print("Ctrl-C stops the sandbox. What is asked of the server:")
    try:
        for chunk in server.output:
            print(chunk.data, end="", flush=True)
    except KeyboardInterrupt:
        pass
