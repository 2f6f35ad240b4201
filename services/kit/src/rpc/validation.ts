import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { createValidator, type Violation as RuleViolation } from "@bufbuild/protovalidate";
import { DomainError, type Violation } from "../base/domain-error.ts";

const validator = createValidator();

/**
 * Throws VALIDATION_ERROR with every rule of the proto that `message` breaks. Fields have their names in the proto,
 * joined with dots: `env.0.name`. A rule that can't be evaluated is a fault.
 */
export function validate<D extends DescMessage>(schema: D, message: MessageShape<D>): void {
  const result = validator.validate(schema, message);
  if (result.kind === "valid") return;
  if (result.kind === "error") throw result.error;
  const violations = result.violations.map(toViolation);
  const names = [...new Set(violations.map(({ field }) => field))].join(", ");
  throw new DomainError("VALIDATION_ERROR", `The request has invalid fields: ${names}.`, { violations });
}

function toViolation(violation: RuleViolation): Violation {
  const segments = violation.field.flatMap((segment) => {
    switch (segment.kind) {
      case "field":
      case "oneof":
        return [segment.name];
      case "list_sub":
        return [String(segment.index)];
      case "map_sub":
        return [String(segment.key)];
      case "extension":
        return [segment.typeName];
      default:
        return [];
    }
  });
  return { field: segments.join("."), issue: violation.message };
}
