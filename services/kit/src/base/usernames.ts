/** The form in which user names are compared and unique: case doesn't matter. */
export function usernameKey(username: string): string {
  return username.trim().normalize("NFC").toLowerCase();
}
