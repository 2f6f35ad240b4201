import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { limitResponse } from "@sandgate/kit/base/limited-response";
import { minuteMs } from "@sandgate/kit/base/time";
import { budget } from "../domain/rate-counters.ts";
import type { RateCounters } from "../store/rate-counters.ts";

/** Longer than the provider accepts a token, which is two minutes. */
const rememberedMs = 10 * minuteMs;
/** A verdict has some hundred. */
const maxVerdictBytes = 64 * 1024;
/** The provider's words for a token that is bad; any other error is one of this server's settings, or of its own. */
const tokenErrors = new Set(["missing-input-response", "invalid-input-response", "timeout-or-duplicate"]);

export interface Recaptcha {
  /**
   * Checks the token of a form at the provider. Throws VALIDATION_ERROR on `recaptcha_token` for a bad one, UPSTREAM_ERROR when
   * the provider can't tell.
   */
  require(token: string, address: string | undefined): Promise<void>;
}

export interface RecaptchaSettings {
  /** Without one no token is checked. */
  secret: string | undefined;
  url: string;
  /** Of tokens with a score (v3), from 0 to 1. */
  minScore: number;
  /** Of the pages that the form may be on. */
  hostnames: readonly string[];
  /** Of tokens with an action (v3); any when empty. */
  actions: readonly string[];
}

/** The answer's fields that are looked at. */
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
      if (token === "") throw bad("is needed");
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
  return new DomainError("UPSTREAM_ERROR", "The provider of reCAPTCHA can't be asked.", {
    hint: "Try again a little later with a new token.",
    cause,
  });
}
