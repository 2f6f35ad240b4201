import { create, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";

type FieldsOf<M> = Omit<M, "$typeName" | "$unknown">;

/** Every field of a message; undefined leaves a field unset. */
type AllFieldsOf<M> = { [K in keyof Required<FieldsOf<M>>]: FieldsOf<M>[K] };

/** Creates a message from all of its fields: one that is forgotten doesn't compile. */
export function createMessage<D extends DescMessage>(schema: D, fields: AllFieldsOf<MessageShape<D>>): MessageShape<D> {
  return Object.assign(create(schema), fields);
}

export function toTimestamp(at: Date | undefined): Timestamp | undefined {
  return at && timestampFromDate(at);
}
