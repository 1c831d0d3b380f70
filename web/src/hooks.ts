import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { connection, user } from "./state";
import { Gone } from "./api";

export interface Answer<T> {
  data: T | null;
  error: string;
  loading: boolean;
}

/**
 * Asks now, whenever `key` changes and then every so many ms, as long as the page is looked at. What was there
 * stays until something newer is.
 */
export function useAnswer<T>(
  key: string,
  work: (signal: AbortSignal) => Promise<T>,
  every: number | null,
): Signal<Answer<T>> {
  const answer = useSignal<Answer<T>>({ data: null, error: "", loading: true });
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const once = async (): Promise<void> => {
      if (document.hidden || !user.peek()) return;
      try {
        const data = await work(abort.signal);
        if (!abort.signal.aborted) answer.value = { data, error: "", loading: false };
      } catch (error) {
        if (abort.signal.aborted) return;
        const text = error instanceof Gone ? "" : (error as Error).message;
        answer.value = { ...answer.peek(), error: text, loading: false };
      }
    };
    const round = async (): Promise<void> => {
      // While nobody answers the connection itself tries again.
      if (connection.peek() !== "gone") await once();
      if (every !== null && !abort.signal.aborted) timer = setTimeout(() => void round(), every);
    };
    answer.value = { ...answer.peek(), loading: true };
    void round();
    let before = connection.peek();
    const stop = connection.subscribe((now) => {
      if (before === "gone" && now !== "gone") void once();
      before = now;
    });
    return () => {
      abort.abort();
      clearTimeout(timer);
      stop();
    };
  }, [key, every]);
  return answer;
}
