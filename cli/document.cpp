#include "cli/document.hpp"

#include <fmt/format.h>
#include <google/protobuf/timestamp.pb.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <ctime>

namespace openshell::cli {
namespace {

namespace json = boost::json;

template <class Visit>
void for_each_sorted(const json::object& object, Visit visit) {
  std::vector<const json::key_value_pair*> members;
  for (const auto& member : object) members.push_back(&member);
  std::sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->key() < b->key(); });
  for (const auto* member : members) visit(*member);
}

void write_json(const json::value& value, std::string& out, int depth) {
  const std::string inner(static_cast<std::size_t>(depth + 1) * 2, ' ');
  const std::string outer(static_cast<std::size_t>(depth) * 2, ' ');
  const char* separator = "";
  if (value.is_object() && !value.get_object().empty()) {
    out += "{";
    for_each_sorted(value.get_object(), [&](const json::key_value_pair& member) {
      out += fmt::format("{}\n{}{}: ", separator, inner, json::serialize(json::string{member.key()}));
      write_json(member.value(), out, depth + 1);
      separator = ",";
    });
    out += "\n" + outer + "}";
  } else if (value.is_array() && !value.get_array().empty()) {
    out += "[";
    for (const auto& item : value.get_array()) {
      out += fmt::format("{}\n{}", separator, inner);
      write_json(item, out, depth + 1);
      separator = ",";
    }
    out += "\n" + outer + "]";
  } else {
    out += json::serialize(value);
  }
}

void write_yaml(const json::value& value, YAML::Emitter& out) {
  switch (value.kind()) {
    case json::kind::object:
      if (value.get_object().empty()) out << YAML::Flow;
      out << YAML::BeginMap;
      for_each_sorted(value.get_object(), [&](const json::key_value_pair& member) {
        out << YAML::Key << std::string{member.key()} << YAML::Value;
        write_yaml(member.value(), out);
      });
      out << YAML::EndMap;
      break;
    case json::kind::array:
      if (value.get_array().empty()) out << YAML::Flow;
      out << YAML::BeginSeq;
      for (const auto& item : value.get_array()) write_yaml(item, out);
      out << YAML::EndSeq;
      break;
    case json::kind::string:
      out << YAML::DoubleQuoted << std::string{value.get_string()};
      break;
    case json::kind::null:
      out << YAML::Null;
      break;
    default:
      out << json::serialize(value);
  }
}

bool is_time(const google::protobuf::Timestamp& time) { return time.seconds() > 0 || (time.seconds() == 0 && time.nanos() > 0); }

std::string formatted(const google::protobuf::Timestamp& time, const char* pattern) {
  const std::time_t seconds = time.seconds();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, pattern, &parts)};
}

}  // namespace

std::string to_json_text(const json::value& document) {
  std::string out;
  write_json(document, out, 0);
  return out + "\n";
}

std::string to_yaml_text(const json::value& document) {
  YAML::Emitter out;
  write_yaml(document, out);
  return std::string{out.c_str()} + "\n";
}

void print_document(const json::value& document, Format format) {
  const auto text = format == Format::yaml ? to_yaml_text(document) : to_json_text(document);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

std::string to_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}", row[i], widths[i] + 2);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string show_time(const google::protobuf::Timestamp& time) { return is_time(time) ? formatted(time, "%Y-%m-%d %H:%M:%S") : "-"; }

std::string rfc3339(const google::protobuf::Timestamp& time) {
  return is_time(time) ? formatted(time, "%Y-%m-%dT%H:%M:%S") + fmt::format(".{:03}Z", time.nanos() / 1'000'000) : "";
}

std::int64_t epoch_ms(const google::protobuf::Timestamp& time) { return time.seconds() * 1'000 + time.nanos() / 1'000'000; }

std::string short_hash(const std::string& hash) { return hash.substr(0, 12); }

}  // namespace openshell::cli
