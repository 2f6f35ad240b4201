import { readFileSync } from "node:fs";

/** The parts of Vitest's JSON report that are counted; its suites are files. */
interface Report {
  numPassedTests: number;
  numPendingTests: number;
  numTodoTests: number;
  testResults: {
    name: string;
    status: string;
    message: string;
    assertionResults: { status: string; fullName: string; failureMessages: string[] }[];
  }[];
}

/**
 * Prints how many tests of the reports that the arguments name passed, failed and were skipped, a line each, and on
 * standard error each failure with its cause. A file that failed outside its tests counts as one failure, and so does a
 * run without any test.
 */
const reports = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file, "utf8")) as Report);
const sum = (count: (report: Report) => number) => reports.reduce((total, report) => total + count(report), 0);
const failures = reports
  .flatMap(({ testResults }) => testResults)
  .filter((file) => file.status === "failed")
  .flatMap((file) => {
    const failedTests = file.assertionResults.filter((test) => test.status === "failed");
    return failedTests.length === 0
      ? [`${file.name}\n${file.message}`]
      : failedTests.map((test) => `${file.name}: ${test.fullName}\n${test.failureMessages.join("\n")}`);
  });
const passed = sum(({ numPassedTests }) => numPassedTests);
const skipped = sum(({ numPendingTests, numTodoTests }) => numPendingTests + numTodoTests);
const isEmpty = sum(({ testResults }) => testResults.length) === 0;
if (isEmpty) failures.push("no test was run");
for (const failure of failures) process.stderr.write(`FAILED   ${failure}\n`);
process.stdout.write(`passed ${passed}\nfailed ${failures.length}\nskipped ${skipped}\n`);
