/** The bytes of what settings, limits and messages call a MB. */
export const mebibyte = 1024 * 1024;
