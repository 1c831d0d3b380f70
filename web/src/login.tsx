import { useSignal } from "@preact/signals";
import { logIn } from "./api";
import { Trouble } from "./parts";

export function Login() {
  const byToken = useSignal(false);
  const error = useSignal("");
  const busy = useSignal(false);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => String(data.get(name) ?? "");
    busy.value = true;
    error.value = "";
    try {
      await logIn(
        byToken.value
          ? { token: text("token").trim() }
          : { username: text("username"), password: text("password") },
      );
    } catch (problem) {
      error.value = (problem as Error).message;
    } finally {
      busy.value = false;
    }
  };
  return (
    <main class="login">
      <form onSubmit={(event) => void submit(event)} aria-label="Log in">
        <h1>Skua</h1>
        {byToken.value ? (
          <label>
            Token
            <input name="token" type="password" autocomplete="off" required autofocus />
          </label>
        ) : (
          <>
            <label>
              User
              <input name="username" autocomplete="username" required autofocus />
            </label>
            <label>
              Password
              <input name="password" type="password" autocomplete="current-password" required />
            </label>
          </>
        )}
        <Trouble text={error.value} />
        <button type="submit" class="primary" disabled={busy.value}>
          Log in
        </button>
        <button
          type="button"
          class="plain"
          onClick={() => {
            byToken.value = !byToken.value;
            error.value = "";
          }}
        >
          {byToken.value ? "With user and password" : "With a token"}
        </button>
        <p>
          On its host, <code>sudo skua console</code> prints a link that logs in.
        </p>
      </form>
    </main>
  );
}
