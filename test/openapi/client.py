"""A program on the package that openapi-python-client makes of the description (`sandgate_api` beside it)."""

import json
import sys

from sandgate_api import AuthenticatedClient, Client
from sandgate_api.api.accounts import sign_in
from sandgate_api.api.sandbox_images import list_images
from sandgate_api.api.sandboxes import get_sandbox, provision_sandbox, stop_sandbox
from sandgate_api.api.workspaces import list_workspaces
from sandgate_api.models import Error, Login, ProvisionSandbox, ProvisionSandboxLabels, SandboxState

url, username, password = sys.argv[1:]
session = sign_in.sync(client=Client(base_url=url), body=Login(username=username, password=password))
api = AuthenticatedClient(base_url=url, token=session.tokens.access_token)

workspace = list_workspaces.sync(client=api).workspaces[0].id
# What has a default may be left out.
images = list_images.sync(client=api, x_workspace_id=workspace).images
labels = ProvisionSandboxLabels()
labels["made"] = "python"
body = ProvisionSandbox(image_id=next(image.id for image in images if image.is_default), labels=labels)
sandbox = provision_sandbox.sync(client=api, body=body, x_workspace_id=workspace)
missing = get_sandbox.sync("none", client=api, x_workspace_id=workspace)
assert isinstance(sandbox.state, SandboxState) and isinstance(missing, Error)
stop_sandbox.sync(sandbox.id, client=api, x_workspace_id=workspace)
print(
    json.dumps(
        {
            "state": sandbox.state,
            "labels": sandbox.labels.to_dict(),
            "code": missing.error.code,
        }
    )
)
