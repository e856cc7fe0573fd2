#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looks at pages in Chromium, 1280 and 400 pixels wide, in light and dark, and prints them.

    pages.py OUT PAGE.html|FOLDER...       of a folder, all pages in and below it

Leaves screenshots and PDFs in the folder OUT. Ends with 1 and a line for each error on the console, each request for anything else,
texts that overlap or are cut off, and pages that are wider than the screen; with 77 without playwright (PyPI) or Chromium.
"""

import pathlib
import shutil
import sys

# Texts as boxes: those that overlap by more than two pixels each way, and those that stand outside their drawing or the page.
LOOK = """
() => {
  const wrong = [], boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const holder = node.parentElement;
    if (!node.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT", "OPTION"].includes(holder.tagName) || holder.tagName === "title") continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      if (r.width < 1 || r.height < 1) continue;
      const box = {left: r.left, right: r.right, top: r.top + scrollY, bottom: r.bottom + scrollY, text: node.data.trim().slice(0, 40)};
      boxes.push(box);
      const drawing = holder.closest("svg.chart"), place = holder.closest(".scroll");
      if (drawing) {
        const d = drawing.getBoundingClientRect();
        if (r.left < d.left - 1 || r.right > d.right + 1 || r.top < d.top - 1 || r.bottom > d.bottom + 1) wrong.push("cut off: " + box.text);
      } else if (!place && (r.left < -1 || r.right > innerWidth + 1)) wrong.push("outside of the page: " + box.text);
    }
  }
  boxes.sort((a, b) => a.top - b.top);
  for (let i = 0; i < boxes.length; ++i) {
    for (let j = i + 1; j < boxes.length && boxes[j].top < boxes[i].bottom - 2; ++j) {
      const a = boxes[i], b = boxes[j];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - b.top;
      if (wide > 2 && high > 4) wrong.push(`overlap: "${a.text}" and "${b.text}"`);
    }
  }
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth + 1) wrong.push(`${root.scrollWidth} pixels wide on a screen of ${root.clientWidth}`);
  for (const s of document.querySelectorAll(".scroll"))
    if (s.scrollWidth > s.clientWidth + 1) console.info("scrolls: " + s.querySelector("th,td").textContent + "...");
  return wrong;
}
"""


def look(browser, file, out):
    wrong = []
    for width in (1280, 400):
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.set_default_timeout(300_000)  # on a busy machine
            place = f"{file.parent.name}/{file.name}, {width} pixels, {scheme}"
            page.on("console", lambda m, place=place: wrong.append(f"{place}: {m.text}") if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda e, place=place: wrong.append(f"{place}: {e}"))
            page.on("request", lambda r, place=place: None if r.url.startswith("file:") else wrong.append(f"{place}: asks for {r.url}"))
            page.goto(file.resolve().as_uri())
            seen = [f"{place}: {text}" for text in page.evaluate(LOOK)]
            print("\n".join(seen), flush=True) if seen else None
            wrong += seen
            print(place, flush=True)
            page.screenshot(path=out / f"{file.parent.name}_{file.stem}_{width}_{scheme}.png", full_page=True)
            if scheme == "dark" and width == 1280:
                page.pdf(path=out / f"{file.parent.name}_{file.stem}.pdf", format="A4", print_background=True)
                page.emulate_media(media="print")
                page.set_viewport_size({"width": 680, "height": 900})  # an A4 page without its margins
                wrong += [f"{file.parent.name}/{file.name}, in print: {text}" for text in page.evaluate(LOOK)]
            page.close()
    return wrong


def main():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as e:
        print(f"skipped: {e}; PyPI has playwright")
        return 77
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("skipped: there is no chromium")
        return 77
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    pages, wrong = [], []
    for path in map(pathlib.Path, sys.argv[2:]):
        pages += sorted(path.rglob("*.html")) if path.is_dir() else [path]
    if not pages:
        print("there are no pages")
        return 1
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page in pages:
            wrong += look(browser, page, out)
        browser.close()
    print("\n".join(wrong) or f"{len(pages)} pages are as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
