import { DomainError } from "@sandgate/kit/base/domain-error";

/** What a workspace may have at most; 0 means no limit. */
export interface Caps {
  maxImages: number;
  maxRegistries: number;
}

export function tooManyImages({ maxImages }: Caps): DomainError {
  return new DomainError("CONFLICT", "The workspace has as many images as it may have.", {
    hint: `A workspace may have ${maxImages} images of its own. Delete one, or ask the operator for more.`,
  });
}

export function tooManyRegistries({ maxRegistries }: Caps): DomainError {
  return new DomainError("CONFLICT", "The workspace has as many registry credentials as it may have.", {
    hint: `A workspace may have ${maxRegistries} registry credentials. Delete one, or ask the operator for more.`,
  });
}
