import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { sessionTransactions } from "./sessions.sqlite.transactions.ts";
import type { RefreshTokens, Sessions } from "./sessions.ts";

interface SessionRow {
  id: string;
  created_at: number;
  seen_at: number;
  address: string;
  user_agent: string;
}

export function createSessions({ read, write }: SqliteDatabase<typeof sessionTransactions>): Sessions {
  return {
    create: write.createSession,
    end: write.endSession,
    endOthers: write.endOtherSessions,

    async list(userId, limit, before, now) {
      const rows = read.all<SessionRow>(
        `SELECT id, created_at, seen_at, address, user_agent FROM sessions
         WHERE user_id = :user AND ended_at IS NULL AND idle_at > :now
           AND (created_at, id) < (:before, :id)
         ORDER BY created_at DESC, id DESC LIMIT :limit`,
        { user: userId, now, before: before?.createdAt ?? Number.MAX_SAFE_INTEGER, id: before?.id ?? "", limit },
      );
      return rows.map(({ id, created_at, seen_at, address, user_agent }) => ({
        id,
        createdAt: new Date(created_at),
        lastSeenAt: new Date(seen_at),
        client: { address, userAgent: user_agent },
      }));
    },

    async find(userId, sessionId, now) {
      const row = read.get<{ created_at: number; idle_at: number }>(
        "SELECT created_at, idle_at FROM sessions WHERE id = ? AND user_id = ? AND ended_at IS NULL AND idle_at > ?",
        sessionId,
        userId,
        now,
      );
      return row && { createdAt: new Date(row.created_at), idleAt: new Date(row.idle_at) };
    },

    async listEndedSince(since) {
      return read.all<{ id: string }>("SELECT id FROM sessions WHERE ended_at > ?", since).map(({ id }) => id);
    },
  };
}

export function createRefreshTokens({ read, write }: SqliteDatabase<typeof sessionTransactions>): RefreshTokens {
  return {
    rotate: write.rotateRefreshToken,
    endSession: write.endSessionOfToken,

    async findSession(refreshTokenHash) {
      return read.get<{ sessionId: string; userId: string }>(
        `SELECT s.id AS sessionId, s.user_id AS userId FROM refresh_tokens t JOIN sessions s ON s.id = t.session_id
         WHERE t.token_hash = ?`,
        refreshTokenHash,
      );
    },
  };
}
