import { expect, test } from "vitest";
import { explainHelperEnd } from "./helper-end.ts";

const ociFailure = "OCI runtime exec failed: exec failed: unable to start container process:";

test.each([
  [126, `${ociFailure} exec: "/.sandgate/helper": stat /.sandgate/helper: no such file or directory`, "CONFLICT"],
  [127, "exec: executable file not found in $PATH", "CONFLICT"],
  [
    126,
    `${ociFailure} chdir to cwd ("/work") set in config.json failed: no such file or directory`,
    "RUNTIME_UNAVAILABLE",
  ],
  [126, `${ociFailure} read init-p: connection reset by peer`, "RUNTIME_UNAVAILABLE"],
  [1, "helper: stat /proc/self: no such file or directory", "RUNTIME_UNAVAILABLE"],
])("a helper that ended with %i, of which it is said %j, is a %s", (exitCode, words, reason) => {
  expect(explainHelperEnd(exitCode, words).reason).toBe(reason);
});
