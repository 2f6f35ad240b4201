import { minuteMs } from "@sandgate/kit/base/time";
import type { ApiToken } from "../domain/api-tokens.ts";

export interface ApiTokenUses {
  record(token: Pick<ApiToken, "id" | "lastUsedAt">, now: Date): void;
  /** Empties the log; the caller stores what was in it. */
  take(): { id: string; usedAt: Date }[];
}

/** Records in memory when tokens were used, to the minute, so that a request doesn't cost a write. */
export function createApiTokenUses(): ApiTokenUses {
  let uses = new Map<string, Date>();
  return {
    record(token, now) {
      const minute = new Date(Math.floor(now.getTime() / minuteMs) * minuteMs);
      if (token.lastUsedAt === undefined || token.lastUsedAt < minute) uses.set(token.id, minute);
    },
    take() {
      const taken = Array.from(uses, ([id, usedAt]) => ({ id, usedAt }));
      uses = new Map();
      return taken;
    },
  };
}
