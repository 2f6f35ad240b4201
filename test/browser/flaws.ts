import axe from "axe-core";
import type { Page } from "playwright-core";

/** A finding of axe that is not ours to mend. */
interface AllowedFlaw {
  rule: string;
  /** A part of the element's HTML. */
  element: string;
  reason: string;
}

interface FlawOptions {
  /** A selector: axe looks at that part of the page alone. */
  within?: string;
  allowed?: readonly AllowedFlaw[];
}

const wide = { width: 1280, height: 800 };
const narrow = { width: 320, height: 640 };
/** Each differs from the one before in one thing, so that the page is not loaded again. */
const looks = [
  { size: wide, colorScheme: "light" },
  { size: wide, colorScheme: "dark" },
  { size: narrow, colorScheme: "dark" },
  { size: narrow, colorScheme: "light" },
] as const;

/**
 * What is wrong with the page as it is now, a line each: what axe finds on a wide screen and on the narrowest phones, in
 * light colours and in dark ones, and whether it is wider than those phones. Leaves it on the phone.
 */
export async function findFlaws(page: Page, o: FlawOptions = {}): Promise<string[]> {
  await page.evaluate(axe.source);
  const flaws: string[] = [];
  for (const { size, colorScheme } of looks) {
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme });
    const violations = await findViolations(page, o);
    flaws.push(...violations.map((violation) => `${size.width} px, ${colorScheme}: ${violation}`));
  }
  const width = await page.evaluate("document.documentElement.scrollWidth");
  if (width !== narrow.width) flaws.push(`is ${width} px wide on a phone`);
  return flaws;
}

async function findViolations(page: Page, { within = "html", allowed = [] }: FlawOptions): Promise<string[]> {
  // Colours fade into those of the other scheme. What blinks never ends.
  await page.evaluate(
    "Promise.allSettled(document.getAnimations().filter(({ effect }) => effect.getComputedTiming().endTime !== Infinity).map(({ finished }) => finished)).then(() => {})",
  );
  const { violations } = await page.evaluate<axe.AxeResults>(`axe.run("${within}", { resultTypes: ["violations"] })`);
  return violations.flatMap(({ id, nodes }) =>
    nodes
      .filter(({ html }) => !allowed.some(({ rule, element }) => rule === id && html.includes(element)))
      .map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  );
}
