import { Type } from "typebox";
import { component, NullableText, readOnly } from "../../pipeline/validation/common-schemas.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";

export const PortParams = Type.Object({
  ...SandboxParams.properties,
  port: Type.String({
    pattern: "^(?:[1-9]\\d{0,3}|[1-5]\\d{4}|6[0-4]\\d{3}|65[0-4]\\d{2}|655[0-2]\\d|6553[0-5])$",
    "x-issue": "must be 1 to 65535",
    description: "1 to 65535.",
    examples: ["3000"],
  }),
});
export const PortPathParams = Type.Object({
  ...PortParams.properties,
  rest: Type.Optional(Type.String({ description: "The path on the server, to which the query belongs too." })),
});

const ListeningPort = component("ListeningPort", {
  port: Type.Integer({ examples: [3000] }),
  address: Type.String({ description: "The address that it listens on.", examples: ["127.0.0.1"] }),
  process_id: { ...NullableText, description: "The `id` of the process that it belongs to, if it is one of ours." },
});
export const ListeningPortList = component("ListeningPortList", { ports: readOnly(Type.Array(ListeningPort)) });
