#include "actors/introspection/message_counter.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>

#include "actors/introspection/shown_text.hpp"

namespace openshell {
namespace {

constexpr std::uint64_t kOther = 0;
constexpr std::chrono::seconds kLongestSpan{2};
constexpr std::chrono::seconds kShortestSpan{1};
constexpr std::array kQuiet{caf::atom("tick"), caf::atom("introspect"), caf::atom("sweep")};

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text{abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free};
  return status == 0 && text ? std::string{text.get()} : std::string{name};
}

}  // namespace

std::string message_kind(std::string_view type) {
  if (const auto inner = type.find('<'); inner != std::string_view::npos) {
    const auto end = type.find_first_of(",>", inner);
    const auto outer = message_kind(type.substr(0, inner));
    auto name = message_kind(type.substr(inner + 1, end == std::string_view::npos ? end : end - inner - 1));
    if (name.ends_with(" const")) name.resize(name.size() - 6);
    return outer == "Ask" || outer == "shared_ptr" ? name : outer + " of " + name;
  }
  const auto last = type.rfind(':');
  return std::string{last == std::string_view::npos ? type : type.substr(last + 1)};
}

MessageCounter::Kind& MessageCounter::kind_of(caf::type_erased_tuple& message) {
  std::uint64_t key = kOther;
  const auto type = message.empty() ? caf::rtti_pair{0, nullptr} : message.type(0);
  const bool atom = type.first == caf::type_nr<caf::atom_value>::value;
  if (atom) {
    key = static_cast<std::uint64_t>(message.get_as<caf::atom_value>(0));
  } else if (type.second != nullptr) {
    key = reinterpret_cast<std::uint64_t>(type.second);
  }
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& kind) { return kind.key == key; });
  if (found != kinds_.end()) return *found;
  if (key == kOther || kinds_.size() + 1 >= kMaxMessageKinds) {
    const auto other = std::find_if(kinds_.begin(), kinds_.end(), [](const Kind& kind) { return kind.key == kOther; });
    if (other != kinds_.end()) return *other;
    return kinds_.emplace_back(Kind{kOther, "other", 0, 0, false});
  }
  Kind fresh;
  fresh.key = key;
  if (atom) {
    const auto value = message.get_as<caf::atom_value>(0);
    fresh.name = caf::to_string(value);
    fresh.quiet = std::find(kQuiet.begin(), kQuiet.end(), value) != kQuiet.end();
  } else {
    fresh.name = message_kind(demangled(type.second->name()));
  }
  fresh.name.resize(std::min(fresh.name.size(), kMaxRateName));
  return kinds_.emplace_back(std::move(fresh));
}

bool MessageCounter::count(caf::type_erased_tuple& message) {
  auto& kind = kind_of(message);
  last_ = static_cast<std::size_t>(&kind - kinds_.data());
  ++kind.total;
  ++total_;
  return !kind.quiet;
}

void MessageCounter::undo() {
  if (kinds_.empty() || kinds_[last_].total == kinds_[last_].taken) return;
  --kinds_[last_].total;
  --total_;
}

std::map<std::string, double> MessageCounter::take_rates(TimePoint now) {
  const auto span = now - since_;
  const auto counted =
      span > kLongestSpan || span < kShortestSpan ? std::chrono::duration<double>{kShortestSpan} : std::chrono::duration<double>{span};
  since_ = now;
  std::vector<std::pair<std::uint64_t, Kind*>> busy;
  for (auto& kind : kinds_) {
    const auto fresh = kind.total - std::exchange(kind.taken, kind.total);
    if (fresh > 0) busy.emplace_back(fresh, &kind);
  }
  const auto shown = std::min(busy.size(), kMaxShownRates);
  std::partial_sort(busy.begin(), busy.begin() + static_cast<std::ptrdiff_t>(shown), busy.end(),
                    [](const auto& a, const auto& b) { return a.first > b.first; });
  std::map<std::string, double> rates;
  for (std::size_t i = 0; i < shown; ++i) rates[busy[i].second->name] += static_cast<double>(busy[i].first) / counted.count();
  return rates;
}

}  // namespace openshell
