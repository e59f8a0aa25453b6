#include "policy/yaml_tree.hpp"

#include <absl/container/flat_hash_set.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "policy/text.hpp"

namespace openshell::policy {
namespace {

using text::cat;

// Ends the reading. Caught in read_yaml, never outside.
struct Refused {
  YAML::Mark mark;
  std::string why;
};

// The first byte that is no part of valid UTF-8 or, in a source text, that YAML does not allow (yaml-cpp takes byte 4 for the end of the
// text).
std::optional<std::pair<std::size_t, std::string_view>> bad_byte(std::string_view text, bool source) {
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x80) {
      if (source && ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F))
        return std::make_pair(i, "control characters are not allowed");
      ++i;
      continue;
    }
    const std::size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    std::uint32_t code = length == 4 ? c & 0x07U : length == 3 ? c & 0x0FU : c & 0x1FU;
    bool valid = c >= 0xC2 && c <= 0xF4 && i + length <= text.size();
    for (std::size_t k = 1; valid && k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      valid = (next & 0xC0U) == 0x80U;
      code = code << 6U | (next & 0x3FU);
    }
    valid = valid && !(length == 3 && code < 0x800) && !(length == 4 && (code < 0x10000 || code > 0x10FFFF)) &&
            !(code >= 0xD800 && code <= 0xDFFF);
    if (!valid) return std::make_pair(i, "sandbox policy is not valid UTF-8");
    i += length;
  }
  return std::nullopt;
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view source, const ParseLimits& limits) : source_{source}, limits_{limits} {}

  [[nodiscard]] YamlNodePtr root() const { return root_; }
  [[nodiscard]] Place place_of(const YAML::Mark& mark) const {
    if (mark.is_null()) return {1, 1};
    // yaml-cpp counts bytes; people count characters. Marks come in order but for a few, so the counting goes on where it stopped.
    const auto at = std::min(static_cast<std::size_t>(std::max(mark.pos, 0)), source_.size());
    if (at < counted_to_) {
      counted_to_ = 0;
      counted_ = {1, 1};
    }
    for (; counted_to_ < at; ++counted_to_) {
      const auto c = static_cast<unsigned char>(source_[counted_to_]);
      if (c == '\n') {
        counted_ = {counted_.line + 1, 1};
      } else if ((c & 0xC0U) != 0x80U) {
        ++counted_.column;
      }
    }
    return counted_;
  }

  void OnDocumentStart(const YAML::Mark& mark) override { count_event(mark); }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    (void)mark;
    (void)name;
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { scalar(mark, anchor, "", ScalarType::null); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    count_event(mark);
    if (++aliases_ > limits_.aliases) throw Refused{mark, cat("more than ", limits_.aliases, " aliases")};
    if (aliases_ > limits_.alias_ratio * anchors_) {
      throw Refused{mark, cat("more than ", limits_.alias_ratio, " aliases for each anchor")};
    }
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) throw Refused{mark, "an alias may not stand inside the node that its anchor names"};
    const YamlNode& node = *found->second;
    if (stack_.size() + node.height > limits_.depth) throw Refused{mark, cat("nested deeper than ", limits_.depth, " levels")};
    count_nodes(mark, node.nodes, node.scalar_bytes);
    attach(mark, found->second);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    const char first =
        mark.pos >= 0 && static_cast<std::size_t>(mark.pos) < source_.size() ? source_[static_cast<std::size_t>(mark.pos)] : ' ';
    const bool quoted = tag == "!" && std::string_view{"\"'|>"}.find(first) != std::string_view::npos;
    if (!quoted && tag != "?" && !tag.empty()) throw Refused{mark, cat("tags are not allowed: ", shorten(tag, 64))};
    scalar(mark, anchor, value, quoted ? ScalarType::string : core_type(value), quoted);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::sequence);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::mapping);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    std::shared_ptr<YamlNode> node;
    YAML::anchor_t anchor;
    std::optional<YamlKey> key;  // of a mapping: read, its value not yet
    absl::flat_hash_set<std::string> seen;
  };

  void count_event(const YAML::Mark& mark) {
    if (++events_ > limits_.events) throw Refused{mark, cat("more than ", limits_.events, " events")};
  }
  void count_nodes(const YAML::Mark& mark, std::size_t nodes, std::size_t bytes) {
    nodes_ += nodes;
    scalar_bytes_ += bytes;
    if (nodes_ > limits_.nodes) throw Refused{mark, cat("more than ", limits_.nodes, " nodes")};
    if (scalar_bytes_ > limits_.scalar_bytes) throw Refused{mark, cat("more than ", limits_.scalar_bytes, " bytes of text")};
  }

  void scalar(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& value, ScalarType type, bool quoted = false) {
    count_event(mark);
    count_nodes(mark, 1, value.size());
    if (bad_byte(value, false))
      throw Refused{mark, "the escapes \\N and \\_ are not allowed"};  // yaml-cpp makes bytes of them that are no UTF-8
    auto node = std::make_shared<YamlNode>();
    node->type = type;
    node->text = value;
    node->place = place_of(mark);
    node->height = 0;
    node->scalar_bytes = value.size();
    if (anchor != YAML::NullAnchor) remember(anchor, node);
    if (wants_key() && !quoted && value == "<<") throw Refused{mark, "merge keys (<<) are not allowed"};
    attach(mark, std::move(node));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    count_event(mark);
    if (tag != "?" && !tag.empty()) throw Refused{mark, cat("tags are not allowed: ", shorten(tag, 64))};
    count_nodes(mark, 1, 0);
    if (stack_.size() + 1 > limits_.depth) throw Refused{mark, cat("nested deeper than ", limits_.depth, " levels")};
    if (wants_key()) throw Refused{mark, "a key must be a string"};
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->place = place_of(mark);
    if (anchor != YAML::NullAnchor) ++anchors_;
    stack_.push_back({std::move(node), anchor, std::nullopt, {}});
  }

  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    for (const auto& item : frame.node->items) {
      frame.node->nodes += item->nodes;
      frame.node->height = std::max(frame.node->height, item->height + 1);
      frame.node->scalar_bytes += item->scalar_bytes;
    }
    for (const auto& key : frame.node->keys) {
      frame.node->nodes += 1;
      frame.node->scalar_bytes += key.text.size();
    }
    if (frame.anchor != YAML::NullAnchor) anchored_[frame.anchor] = frame.node;
    attach(YAML::Mark{}, std::move(frame.node));
  }

  void remember(YAML::anchor_t anchor, const YamlNodePtr& node) {
    ++anchors_;
    anchored_[anchor] = node;
  }

  [[nodiscard]] bool wants_key() const {
    return !stack_.empty() && stack_.back().node->kind == YamlNode::Kind::mapping && !stack_.back().key.has_value();
  }

  void attach(const YAML::Mark& mark, YamlNodePtr node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& parent = stack_.back();
    if (wants_key()) {
      if (node->kind != YamlNode::Kind::scalar || node->type != ScalarType::string) {
        // YAML 1.2, 7.4: what is longer is no key, unless a `?` says so; the reader then finds an empty one.
        throw Refused{mark, node->text.empty()
                                ? std::string{"a key must be a string (one of more than 1024 characters has to begin with '? ')"}
                                : cat("a key must be a string, quote it: \"", shorten(node->text, 64), "\"")};
      }
      if (parent.seen.size() >= limits_.keys) throw Refused{mark, cat("more than ", limits_.keys, " keys in one mapping")};
      if (!parent.seen.insert(node->text).second) throw Refused{mark, cat("duplicate key '", shorten(node->text, 256), "'")};
      parent.key = YamlKey{node->text, place_of(mark)};
      return;
    }
    if (parent.key) {
      parent.node->keys.push_back(*std::exchange(parent.key, std::nullopt));
    } else if (parent.node->items.size() >= limits_.elements) {
      throw Refused{mark, cat("more than ", limits_.elements, " elements in one sequence")};
    }
    parent.node->items.push_back(std::move(node));
  }

  std::string_view source_;
  mutable std::size_t counted_to_ = 0;
  mutable Place counted_{1, 1};
  const ParseLimits& limits_;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, YamlNodePtr> anchored_;
  YamlNodePtr root_;
  std::size_t events_ = 0;
  std::size_t nodes_ = 0;
  std::size_t scalar_bytes_ = 0;
  std::size_t aliases_ = 0;
  std::size_t anchors_ = 0;
};

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

// `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`
bool is_float(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const auto digits = [&](std::string_view part) { return part.find_first_not_of(kDigits) == std::string_view::npos; };
  if (const auto exponent = text.find_first_of("eE"); exponent != std::string_view::npos) {
    auto power = text.substr(exponent + 1);
    if (!power.empty() && (power.front() == '-' || power.front() == '+')) power.remove_prefix(1);
    if (!all_of(power, kDigits)) return false;
    text = text.substr(0, exponent);
  }
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) return all_of(text, kDigits);
  const auto whole = text.substr(0, dot);
  const auto fraction = text.substr(dot + 1);
  return digits(whole) && digits(fraction) && (!whole.empty() || !fraction.empty());
}

}  // namespace

ScalarType core_type(std::string_view plain) {
  for (const std::string_view null : {"", "~", "null", "Null", "NULL"}) {
    if (plain == null) return ScalarType::null;
  }
  for (const std::string_view boolean : {"true", "True", "TRUE", "false", "False", "FALSE"}) {
    if (plain == boolean) return ScalarType::boolean;
  }
  std::string_view number = plain;
  if (number.front() == '-' || number.front() == '+') number.remove_prefix(1);
  if (all_of(number, "0123456789")) return ScalarType::integer;
  if (plain.starts_with("0o") && all_of(plain.substr(2), "01234567")) return ScalarType::integer;
  if (plain.starts_with("0x") && all_of(plain.substr(2), "0123456789abcdefABCDEF")) return ScalarType::integer;
  for (const std::string_view special : {".inf", ".Inf", ".INF"}) {
    if (number == special) return ScalarType::floating;
  }
  for (const std::string_view special : {".nan", ".NaN", ".NAN"}) {
    if (plain == special) return ScalarType::floating;
  }
  return is_float(number) ? ScalarType::floating : ScalarType::string;
}

const YamlNode* YamlNode::find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].text == key) return items[i].get();
  }
  return nullptr;
}

YamlNodePtr read_yaml(std::string_view text, const ParseLimits& limits, Diagnostics& diagnostics) {
  constexpr std::string_view kContext = "failed to parse sandbox policy YAML: ";
  const auto fail = [&](Place place, std::string message) {
    diagnostics.error({}, std::move(message), {}, "not a readable policy text").place = place;
    return nullptr;
  };
  if (text.size() > limits.bytes) return fail({1, 1}, cat("policy exceeds the ", limits.bytes, "-byte input limit"));
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  TreeBuilder builder{text, limits};
  if (const auto bad = bad_byte(text, true)) {
    YAML::Mark mark;
    mark.pos = static_cast<int>(bad->first);
    const bool encoding = bad->second.starts_with("sandbox");
    return fail(builder.place_of(mark), encoding ? std::string{bad->second} : cat(kContext, bad->second));
  }
  try {
    std::istringstream stream{std::string{text}};
    YAML::Parser parser{stream};
    if (!parser.HandleNextDocument(builder) || builder.root() == nullptr) return fail({1, 1}, cat(kContext, "the document is empty"));
    const auto root = builder.root();
    if (parser.HandleNextDocument(builder)) return fail({1, 1}, cat(kContext, "more than one YAML document"));
    return root;
  } catch (const Refused& refused) {
    return fail(builder.place_of(refused.mark), cat(kContext, refused.why));
  } catch (const YAML::Exception& error) {
    return fail(builder.place_of(error.mark), cat(kContext, error.msg));
  } catch (const std::exception& error) {
    return fail({1, 1}, cat(kContext, error.what()));
  }
}

}  // namespace openshell::policy
