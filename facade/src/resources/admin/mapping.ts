import { UserSchema } from "@sandgate/proto/identity/v1/identity";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import * as schemas from "./schemas.ts";

export const toUser = createMapper(UserSchema, schemas.User, { enabled: ({ disabled }) => !disabled });
