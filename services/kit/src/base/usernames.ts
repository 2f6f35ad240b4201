/** Returns the form in which user names are compared and kept unique: case doesn't matter. */
export function usernameKey(username: string): string {
  return username.trim().normalize("NFC").toLowerCase();
}
