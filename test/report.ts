import { appendFileSync, writeFileSync } from "node:fs";
import type { Reporter, SerializedError, TestModule } from "vitest/node";

/**
 * For test/run.sh: adds each failure of a run with its cause to SANDGATE_TEST_FAILURES, of hooks and of what belongs to
 * no test too, and of tests that passed when they were tried again. It writes to SANDGATE_TEST_COUNTS how many tests
 * passed, failed and were skipped, a line each.
 */
export default class Report implements Reporter {
  #failures: string[] = [];
  #flaky: string[] = [];

  #fail(what: string, errors: readonly SerializedError[]): void {
    this.#failures.push(`FAILED   ${what}\n${causesOf(errors)}`);
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    for (const module of modules) {
      for (const suite of [module, ...module.children.allSuites()]) {
        const name = suite.type === "module" ? "" : `: ${suite.fullName}`;
        if (suite.errors().length > 0) this.#fail(`${module.moduleId}${name}`, suite.errors());
      }
      for (const test of module.children.allTests()) {
        const { state, errors = [] } = test.result();
        const name = `${module.moduleId}: ${test.fullName}`;
        if (state === "failed") this.#fail(name, errors);
        else if (test.diagnostic()?.flaky) this.#flaky.push(`FLAKY    ${name}\n${causesOf(errors)}`);
      }
    }
    for (const error of unhandled) this.#fail("outside of all tests", [error]);
    const count = (state: "passed" | "skipped") =>
      modules.reduce((sum, { children }) => sum + [...children.allTests(state)].length, 0);
    appendFileSync(process.env.SANDGATE_TEST_FAILURES ?? "", [...this.#flaky, ...this.#failures].join(""));
    writeFileSync(
      process.env.SANDGATE_TEST_COUNTS ?? "",
      `passed ${count("passed")}\nfailed ${this.#failures.length}\nskipped ${count("skipped")}\n`,
    );
  }
}

function causesOf(errors: readonly SerializedError[]): string {
  return errors.map(({ stack, message }) => `${stack ?? message}\n`).join("");
}
