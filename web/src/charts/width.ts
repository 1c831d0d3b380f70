import { useEffect, useRef, useState } from "preact/hooks";

/** A reference for an element, and its size as it is now. */
export function useSize<T extends HTMLElement = HTMLDivElement>(first = { width: 600, height: 300 }) {
  const place = useRef<T>(null);
  const [size, setSize] = useState(first);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const measure = () => {
      const { clientWidth: width, clientHeight: height } = element;
      if (width) setSize((before) => (before.width === width && before.height === height ? before : { width, height }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [place, size] as const;
}

/** The same of the width alone. */
export function useWidth() {
  const [place, { width }] = useSize();
  return [place, width] as const;
}
