// Colours of the map, in light and dark, and the scale of rates.
import type { Spot } from "../mapdata";

export type Colour = "state" | "rate" | "drops" | "errors";

export interface Palette {
  back: string;
  boxes: string[];
  border: string;
  chip: string;
  text: string;
  dim: string;
  cable: string;
  accent: string;
  up: string;
  down: string;
  heat: string[];
}

const LIGHT: Palette = {
  back: "#f6f8fa",
  boxes: ["#ffffff", "#f1f5f8", "#e8eef3", "#dfe8ee"],
  border: "#c6d1da",
  chip: "#ffffff",
  text: "#17242e",
  dim: "#586874",
  cable: "#8fa2b1",
  accent: "#0b6e8f",
  up: "#1f8a4c",
  down: "#b3362b",
  heat: ["#ffffff", "#e3f1f6", "#bfe0ea", "#8fc8d8", "#f3d98b", "#f0b35a", "#e58a4e"],
};
const DARK: Palette = {
  back: "#0d1419",
  boxes: ["#131c23", "#18242c", "#1e2c36", "#243540"],
  border: "#32434f",
  chip: "#1a262e",
  text: "#e2eaf0",
  dim: "#94a6b4",
  cable: "#587080",
  accent: "#5cc3e0",
  up: "#4fc17d",
  down: "#f0766a",
  heat: ["#1a262e", "#1c3440", "#1e4655", "#23606f", "#6b5a24", "#8a5f22", "#a2532a"],
};
export const palette = (dark: boolean) => (dark ? DARK : LIGHT);

/** Which step of the scale a node has: 0 for nothing, then 1 to 6. */
export function heat(spot: Spot, colour: Colour): number {
  const [rx, tx, drops, errors] = spot.rates;
  const value = colour === "drops" ? drops : colour === "errors" ? errors : rx + tx;
  if (value <= 0) return 0;
  // Rates: 10 kbit/s to 1 Gbit/s; others: 1 to 10,000 a second.
  const power = Math.log10(value) - (colour === "rate" ? 3 : 0);
  return Math.max(1, Math.min(6, Math.ceil(power)));
}
