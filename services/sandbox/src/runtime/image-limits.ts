import { DomainError } from "@sandgate/kit/base/domain-error";

/** Linux's PATH_MAX without the NUL at its end. */
export const maxPathBytes = 4_095;

/**
 * What an image may say about its containers, as JSON. An engine repeats much of it in each list of containers; some of
 * the 4 MiB that registries accept would break every client of the engine.
 */
export const maxConfigBytes = 64 * 1024;

/** PROVISIONING_FAILED for an image whose config goes beyond a limit. */
export function imageRefused(problem: string): DomainError {
  return new DomainError("PROVISIONING_FAILED", `The container could not be started: the image ${problem}.`);
}

/** PROVISIONING_FAILED for an image whose config is larger than `maxConfigBytes`. */
export function configTooLarge(): DomainError {
  return imageRefused(`has a config (labels, environment and so on) of more than ${maxConfigBytes} bytes`);
}
