-- Sends every new ultrasound image to the node USDEHAZE (one of DicomModalities in orthanc.json), which sends back the
-- dehazed one. Images made from others are not sent: neither the node's own nor anyone else's. What was compressed with
-- loss is DERIVED, too, but PRIMARY.

function OnStoredInstance(instance, tags)
  local kind = tags['ImageType'] or ''
  local made = string.sub(kind, 1, 7) == 'DERIVED' and string.sub(kind, 1, 15) ~= 'DERIVED\\PRIMARY'
  if tags['Modality'] == 'US' and not made then
    SendToModality(instance, 'USDEHAZE')
  end
end
