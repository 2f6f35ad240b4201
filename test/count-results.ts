import { readFileSync } from "node:fs";

/** The parts of Vitest's JSON report that are counted; its suites are files. */
interface Report {
  numPassedTests: number;
  numFailedTests: number;
  numPendingTests: number;
  numTodoTests: number;
  testResults: { status: string; assertionResults: { status: string }[] }[];
}

/**
 * Prints "passed failed skipped" of the reports named by the arguments. A file that failed outside its tests counts as
 * one failure, and so does a run without any test.
 */
const reports = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file, "utf8")) as Report);
const sum = (count: (report: Report) => number) => reports.reduce((total, report) => total + count(report), 0);
const brokenFiles = sum(
  ({ testResults }) =>
    testResults.filter(
      (file) => file.status === "failed" && !file.assertionResults.some((test) => test.status === "failed"),
    ).length,
);
const passed = sum(({ numPassedTests }) => numPassedTests);
const skipped = sum(({ numPendingTests, numTodoTests }) => numPendingTests + numTodoTests);
const isEmpty = sum(({ testResults }) => testResults.length) === 0;
const failed = sum(({ numFailedTests }) => numFailedTests) + brokenFiles + (isEmpty ? 1 : 0);
process.stdout.write(`${passed} ${failed} ${skipped}\n`);
