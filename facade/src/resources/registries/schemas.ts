import { Type } from "typebox";
import { Id, Moment, Name, NextCursor } from "../../pipeline/validation/schema-parts.ts";

const registry = {
  name: Name,
  url: Type.String({ minLength: 1, maxLength: 255, description: "`[http(s)://]host[:port]`" }),
  username: Type.String({ minLength: 1, maxLength: 255 }),
  password: Type.String({ minLength: 1, maxLength: 4096 }),
};
export const CreateRegistryBody = Type.Object(registry);
export const UpdateRegistryBody = Type.Partial(Type.Object(registry));
export const RegistryParams = Type.Object({ registry_id: Type.String() });
export const Registry = Type.Object({
  id: Id,
  name: Type.String(),
  url: Type.String(),
  username: Type.String(),
  workspace_id: Type.String(),
  created_at: Moment,
  updated_at: Moment,
});
export const RegistryList = Type.Object({ registries: Type.Array(Registry), next_cursor: NextCursor });
