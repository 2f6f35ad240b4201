/** More than any body has that is taken. What a parser makes of so many takes less than 16 MiB. */
const maxValues = 100_000;

export const tooManyValues = `must not have more than ${maxValues} values`;

const [quote, backslash, comma, openBracket, openBrace] = Buffer.from('"\\,[{');

/**
 * Counts the values of a JSON text, which comes in parts, before it is parsed: a parser makes up to sixty bytes of
 * memory of one of the text. Returns whether those so far are within the bound.
 */
export function createJsonBound(): (part: Uint8Array) => boolean {
  let left = maxValues;
  let isString = false;
  let isEscaped = false;
  return (part) => {
    for (const byte of part) {
      if (isEscaped) isEscaped = false;
      else if (isString && byte === backslash) isEscaped = true;
      else if (byte === quote) isString = !isString;
      else if (!isString && (byte === comma || byte === openBracket || byte === openBrace)) left -= 1;
    }
    return left >= 0;
  };
}
