import { readFileSync } from "node:fs";

/** The parts of vitest's JSON report that are counted; its suites are files. */
interface Report {
  numPassedTests: number;
  numFailedTests: number;
  numPendingTests: number;
  numTodoTests: number;
  testResults: { status: string; assertionResults: { status: string }[] }[];
}

/** Prints "passed failed skipped" of the report named by the argument. A file that failed outside its tests counts as one failure. */
const report = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as Report;
const brokenFiles = report.testResults.filter(
  (file) => file.status === "failed" && !file.assertionResults.some((test) => test.status === "failed"),
);
const failed = report.numFailedTests + brokenFiles.length;
process.stdout.write(`${report.numPassedTests} ${failed} ${report.numPendingTests + report.numTodoTests}\n`);
