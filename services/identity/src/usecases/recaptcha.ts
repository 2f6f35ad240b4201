import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { limitResponse } from "@sandgate/kit/base/limited-response";
import { minuteMs } from "@sandgate/kit/base/time";
import { budget } from "../domain/rate-counters.ts";
import type { RateCounters } from "../store/rate-counters.ts";

/** How long a token is remembered. The provider accepts it for two minutes. */
const rememberedMs = 10 * minuteMs;
/** The longest verdict that is read. One has some hundred bytes. */
const maxVerdictBytes = 64 * 1024;
/**
 * The provider's codes for a bad token. Any other error comes from this server's settings, or from the provider itself.
 */
const tokenErrors = new Set(["missing-input-response", "invalid-input-response", "timeout-or-duplicate"]);

export interface Recaptcha {
  /**
   * Has the provider verify the token of a form. Throws VALIDATION_ERROR on `recaptcha_token` for a bad one,
   * UPSTREAM_ERROR when the provider gives no verdict.
   */
  require(token: string, address: string | undefined): Promise<void>;
}

export interface RecaptchaSettings {
  /** Undefined: no token is checked. */
  secret: string | undefined;
  url: string;
  /** The lowest score that is accepted, from 0 to 1. Tokens of v2 have none. */
  minScore: number;
  /** The hosts of pages that the form may be on. */
  hostnames: readonly string[];
  /** The actions that are accepted; any when empty. Tokens of v2 have none. */
  actions: readonly string[];
}

/** The fields of the answer that are read. */
interface Verdict {
  success: boolean;
  hostname: string | undefined;
  score: number | undefined;
  action: string | undefined;
  errors: readonly unknown[];
}

/** reCAPTCHA v2 and v3, or a provider that answers the same. */
export function createRecaptcha({
  settings,
  store,
  now,
  timeoutMs = 5_000,
}: {
  settings: RecaptchaSettings;
  store: { readonly rateCounters: RateCounters };
  now: () => Date;
  /** How long the provider may take. */
  timeoutMs?: number;
}): Recaptcha {
  const { secret } = settings;
  if (secret === undefined) return { require: async () => undefined };

  async function ask(token: string, address: string | undefined, key: string): Promise<Verdict> {
    try {
      const response = await fetch(settings.url, {
        method: "POST",
        body: new URLSearchParams({
          secret: key,
          response: token,
          ...(address !== undefined && { remoteip: address }),
        }),
        redirect: "error",
        signal: AbortSignal.timeout(timeoutMs),
      });
      if (!response.ok) throw new Error(`the provider answered ${response.status}`);
      return parseVerdict(await limitResponse(response, maxVerdictBytes).json());
    } catch (error) {
      throw upstreamError(error);
    }
  }

  return {
    async require(token, address) {
      if (token === "") throw bad("is required");
      const { success, hostname, score, action, errors } = await ask(token, address, secret);
      const others = errors.filter((error) => typeof error !== "string" || !tokenErrors.has(error));
      if (!success && (errors.length === 0 || others.length > 0)) {
        throw upstreamError(new Error(`the provider refused the request: ${errors.join(", ")}`));
      }
      if (!success) throw bad("is not valid, has expired or has been used");
      if (hostname === undefined || !settings.hostnames.includes(hostname.toLowerCase()))
        throw bad("is for another site");
      if (score !== undefined && score < settings.minScore) throw bad("has too low a score");
      if (action !== undefined && settings.actions.length > 0 && !settings.actions.includes(action)) {
        throw bad("is for another action");
      }
      // The provider refuses a token that it has seen, but not necessarily of two at the same time.
      if (await store.rateCounters.consumeEach([budget(`recaptcha ${token}`, 1, rememberedMs)], now()))
        throw bad("has been used");
    },
  };
}

function parseVerdict(answer: unknown): Verdict {
  if (typeof answer !== "object" || answer === null || !("success" in answer)) throw new Error("not a verdict");
  const { success, hostname, score, action, "error-codes": errors } = answer as Record<string, unknown>;
  return {
    success: success === true,
    hostname: typeof hostname === "string" ? hostname : undefined,
    score: typeof score === "number" ? score : undefined,
    action: typeof action === "string" && action !== "" ? action : undefined,
    errors: Array.isArray(errors) ? errors : [],
  };
}

function bad(issue: string): DomainError {
  return invalid("recaptcha_token", issue);
}

function upstreamError(cause: unknown): DomainError {
  return new DomainError("UPSTREAM_ERROR", "The reCAPTCHA provider can't be reached.", {
    hint: "Try again later with a new token.",
    cause,
  });
}
