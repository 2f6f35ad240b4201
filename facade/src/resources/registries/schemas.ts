import { CreateRegistryRequestSchema } from "@sandgate/proto/imageregistry/v1/image_registry";
import { Type } from "typebox";
import { component, Id, Moment, NextCursor, nameIssue, readOnly } from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";

const registry = {
  name: fieldSchema(CreateRegistryRequestSchema, "name", nameIssue),
  url: fieldSchema(CreateRegistryRequestSchema, "url", { description: "`[http(s)://]host[:port]`" }),
  username: fieldSchema(CreateRegistryRequestSchema, "username"),
  password: fieldSchema(CreateRegistryRequestSchema, "password"),
};
export const CreateRegistryBody = component("CreateRegistry", registry, {
  name: "ours",
  url: "registry.example.com",
  username: "robot",
  password: "…",
});
export const UpdateRegistryBody = Type.Partial(Type.Object(registry), { title: "UpdateRegistry" });
export const RegistryParams = Type.Object({ registry_id: Type.String() });
export const Registry = component("Registry", {
  id: Id,
  name: Type.String(),
  url: Type.String(),
  username: Type.String(),
  workspace_id: readOnly(Type.String()),
  created_at: Moment,
  updated_at: Moment,
});
export const RegistryList = component("RegistryList", { registries: Type.Array(Registry), next_cursor: NextCursor });
