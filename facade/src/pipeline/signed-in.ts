import type { UserCaller } from "@sandgate/kit/rpc/context";

/** Whom a credential stands for. */
export interface SignedIn {
  user: UserCaller;
  /** The workspace an API token is bound to. */
  boundTo?: string;
}
