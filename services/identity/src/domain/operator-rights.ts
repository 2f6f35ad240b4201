/** Whether operators need a second factor for their rights. */
export type OperatorSecondFactor = "optional" | "required";

/**
 * Whether a session or token of this user has an operator's rights, and whether only a second factor is lacking for
 * them.
 */
export function operatorRights(
  user: { operator: boolean },
  secondFactor: boolean,
  demanded: OperatorSecondFactor,
): { operator: boolean; needsSecondFactor: boolean } {
  const needsSecondFactor = user.operator && demanded === "required" && !secondFactor;
  return { operator: user.operator && !needsSecondFactor, needsSecondFactor };
}
