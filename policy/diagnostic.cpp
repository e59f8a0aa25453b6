#include "policy/diagnostic.hpp"

#include <algorithm>

#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

// Levenshtein distance, given up beyond `limit`.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if ((a.size() > b.size() ? a.size() - b.size() : b.size() - a.size()) > limit) return limit + 1;
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// Authored values are quoted in messages, and a terminal or a log must not obey what they hold.
void make_printable(std::string& value) {
  for (char& c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
}

std::string supervisor_line(const Diagnostic& item) {
  return cat(shorten(item.path.empty() ? "policy" : item.path, 160), ": ", item.kind.empty() ? "invalid value" : item.kind);
}

}  // namespace

std::string Diagnostic::render() const {
  std::string out;
  if (place.line > 0) out += cat(file.empty() ? "<policy>" : file, ":", place.line, ":", place.column, ": ");
  if (severity == Severity::warning) out += "warning: ";
  out += message;
  if (!cure.empty()) out += cat("; ", cure);
  const std::string shown = shorten(path, kMaxShownPathBytes);
  if (!path.empty() && message.find(shown) == std::string::npos) out += cat(" [key ", shown, "]");
  return out;
}

Place SourceMap::find(std::string_view path) const {
  while (!path.empty()) {
    if (const auto found = places_.find(path); found != places_.end()) return found->second;
    const auto cut = path.find_last_of(".[");
    path = cut == std::string_view::npos ? std::string_view{} : path.substr(0, cut);
  }
  const auto root = places_.find("");
  return root == places_.end() ? Place{} : root->second;
}

void Diagnostics::add(Diagnostic diagnostic) {
  if (diagnostic.severity == Severity::error) ++errors_;
  for (auto* part : {&diagnostic.path, &diagnostic.message, &diagnostic.cure}) make_printable(*part);
  items_.push_back(std::move(diagnostic));
}

Diagnostic& Diagnostics::error(std::string path, std::string message, std::string cure, std::string kind) {
  add({Severity::error, std::move(path), std::move(message), std::move(cure), std::move(kind), {}, {}});
  return items_.back();
}

Diagnostic& Diagnostics::warning(std::string path, std::string message, std::string cure) {
  add({Severity::warning, std::move(path), std::move(message), std::move(cure), {}, {}, {}});
  return items_.back();
}

void Diagnostics::append(Diagnostics other) {
  for (auto& item : other.items_) add(std::move(item));
}

std::vector<std::string> Diagnostics::messages(Severity severity) const {
  std::vector<std::string> out;
  for (const auto& item : items_) {
    if (item.severity == severity) out.push_back(item.cure.empty() ? item.message : cat(item.message, "; ", item.cure));
  }
  return out;
}

void Diagnostics::locate(const SourceMap& places, std::string_view file) {
  for (auto& item : items_) {
    if (item.place.line == 0) item.place = places.find(item.path);
    item.file = file;
  }
  std::stable_sort(items_.begin(), items_.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
}

std::string Diagnostics::render(bool with_warnings) const {
  std::string out;
  std::size_t shown = 0;
  for (const auto& item : items_) {
    if (item.severity != Severity::error || shown == kMaxDiagnostics) continue;
    out += cat(item.render(), "\n");
    ++shown;
  }
  if (errors_ > shown) out += cat(errors_ - shown, " more errors\n");
  for (const auto& item : items_) {
    if (with_warnings && item.severity == Severity::warning) out += cat(item.render(), "\n");
  }
  return out;
}

absl::Status Diagnostics::status(absl::StatusCode code, std::string_view prefix, std::string_view separator) const {
  if (!has_errors()) return absl::OkStatus();
  auto lines = messages();
  const std::size_t hidden = lines.size() > kMaxDiagnostics ? lines.size() - kMaxDiagnostics : 0;
  if (hidden > 0) {
    lines.resize(kMaxDiagnostics);
    lines.push_back(cat(hidden, " more errors"));
  }
  return {code, cat(prefix, text::join(lines, separator))};
}

std::string Diagnostics::supervisor_text(std::string_view heading) const {
  if (!has_errors()) return {};
  constexpr std::string_view kCut = "\nadditional violations omitted";
  std::string out{heading};
  std::size_t shown = 0;
  for (const auto& item : items_) {
    if (item.severity != Severity::error) continue;
    const std::string line = cat(shown == 0 ? "" : "\n", supervisor_line(item));
    const std::size_t reserve = shown + 1 < errors_ ? kCut.size() : 0;
    if (shown == kMaxSupervisorItems || out.size() + line.size() + reserve > kMaxSupervisorBytes) return cat(out, kCut);
    out += line;
    ++shown;
  }
  return out;
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  std::string_view best;
  std::size_t best_distance = kMaxSuggestionDistance + 1;
  for (const auto candidate : known) {
    const std::size_t distance = edit_distance(word, candidate, kMaxSuggestionDistance);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string shorten(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string{text};
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return cat(text.substr(0, limit), "...");
}

}  // namespace openshell::policy
