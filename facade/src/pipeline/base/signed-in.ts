import type { UserCaller } from "@sandgate/kit/rpc/context";

/** The user whom a credential stands for. */
export interface SignedIn {
  user: UserCaller;
  /** The key that signed a session's token. */
  keyId?: string;
  /** A session lives until then at least, unless it is ended. In epoch milliseconds. */
  livesUntil?: number;
  /** The workspace an API token is bound to. */
  boundTo?: string;
  /** The user is an operator, but the session lacks the second factor that an operator's rights require. */
  needsSecondFactor?: boolean;
  /** Of a request that came with something that was made with the credential instead of with that itself. */
  ticket?: { id: string; workspaceId: string };
}
