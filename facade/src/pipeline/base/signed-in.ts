import type { UserCaller } from "@sandgate/kit/rpc/context";

/** Whom a credential stands for. */
export interface SignedIn {
  user: UserCaller;
  /** The workspace an API token is bound to. */
  boundTo?: string;
  /** The user is an operator, whose session lacks only a second factor for the rights of one. */
  needsSecondFactor?: boolean;
}
